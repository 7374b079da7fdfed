"""Chinese predicates: what may follow a subject, and what it means (see `grammar` for the form)."""

import re
from functools import cache

from kemem.facts.grammar import Language, rules
from kemem.facts.roles import CHINESE, any_of
from kemem.text.patterns import any_word

_SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林罗高郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘蔡"
    "蒋余杜叶程魏苏吕丁任卢姚沈钟姜崔谭陆汪范石廖贾韦夏付方邹熊孟秦邱江尹薛闫段雷"
    "侯龙史陶贺顾毛郝龚邵钱严覃武戴莫孔"
)
_NO_NAMES = (  # words that open like a name
    "高[中兴血考手个管知三二一级度薪冷]|周[末一二三四五六日]|马[上来大虎]|方[便法面案向]|何[时必]|"
    "曾经|程[序度]|江[苏西南湖]|苏州|沈阳|石[家头油]|任[何务性]|许[多久]|严[重肃格]|雷[电雨打]|"
    "龙[猫年]|黄[金油皮]|夏[天季]|王[者子牌]|胡说|曹操|陶瓷|陈[述旧]|贺岁|莫名|叶公|"
    "谢谢|余额|钱[包不都多]|武[汉术侠]|史[上前]|顾[客虑家]|田[园径]|林[业肯]|毛[衣病遂]|孔[子雀]|范围|Team|Senior|Product|"
    "段[时落]|钟[头表]|叶[子酸]|唐[人朝]|老[家板婆公妈爸师了是想实人年虎鼠样]|"
    "小[时学说心区组吃猫狗孩朋]|阿[里姨姆]"
)
_TITLES = "教授|老师|医生|博士|总|经理|主任|律师|师傅|院士|校长|同学|先生|女士|哥|姐|工"
NAME = (
    rf"(?!{_NO_NAMES})(?:(?:欧阳|司马|上官|诸葛|[{_SURNAMES}])"
    rf"(?:{_TITLES}|[\u4e00-\u9fff]{{1,2}}?)|[小老阿][\u4e00-\u9fff]{{1,2}}?"
    r"|[A-Z][a-z]+(?: [A-Z][a-z]+)*)"
)
SELF = (  # how one may call oneself: neither 小仙女 nor 老外 nor 曹操迷
    rf"(?!小[白号妹弟姐丑偷胖]|老[^{_SURNAMES}]|[^，]{{2}}[迷粉工派控族人员师者手徒户座](?![^，]))"
    + NAME.replace("[小老阿][\\u4e00-\\u9fff]{1,2}?", "[小老阿][\\u4e00-\\u9fff]")
)
_PLACES = """
北京 上海 广州 深圳 杭州 南京 苏州 成都 重庆 武汉 西安 天津 长沙 郑州 青岛 厦门 福州 济南 合肥 宁波
无锡 佛山 东莞 珠海 昆明 大理 丽江 贵阳 南宁 海口 三亚 哈尔滨 长春 沈阳 大连 石家庄 太原 兰州 西宁
银川 拉萨 乌鲁木齐 呼和浩特 南昌 桂林 洛阳 敦煌 泉州 香港 澳门 台北 台湾 新疆 西藏 云南 四川 海南
广东 浙江 江苏 福建 湖南 湖北 山东 日本 东京 大阪 京都 韩国 首尔 泰国 曼谷 新加坡 马来西亚 越南 印度
迪拜 美国 纽约 洛杉矶 旧金山 硅谷 西雅图 波士顿 加拿大 多伦多 温哥华 英国 伦敦 法国 巴黎 德国 柏林
慕尼黑 意大利 罗马 西班牙 荷兰 瑞士 冰岛 芬兰 俄罗斯 莫斯科 澳大利亚 澳洲 悉尼 墨尔本 新西兰 巴西
欧洲 国外 海外
"""
PLACE = any_word(_PLACES)
_JOBS = """
工程师 医生 护士 律师 会计 程序员 经理 司机 记者 编辑 作家 画家 演员 歌手 警察 军人 公务员 销售 顾问
科学家 专家 翻译 老板 店长 创业者 自由职业者 主管 总监 教授 教练 农民 工人 导游 主播 牙医 产品 运营
全职妈妈 全职太太 老师 CEO CTO HR (?<![老大])师 (?<![会成人党队学社])员
"""
_ILLS = """
病 症 炎 癌 瘤 高血压 高血脂 高血糖 哮喘 近视 远视 散光 失眠 贫血 痛风 结石 脂肪肝 偏头痛 甲亢 色盲
乳糖不耐 恐高
"""
_PETS = """
猫咪 猫 狗狗 狗 犬 兔子 兔 仓鼠 鹦鹉 乌龟 金鱼 鸟 柯基 金毛 拉布拉多 泰迪 布偶 龙猫 蜥蜴 刺猬 边牧
哈士奇
"""
_SCHOOLS = "大学 学院 中学 高中 小学 学校 附中 幼儿园 研究院 北大 清华 复旦 [交浙南武科人]大"
_FIRMS = "公司 集团 科技 银行 腾讯 阿里巴巴 阿里 百度 字节 华为 美团 京东 网易 谷歌"
_DEGREES = (
    "博士 硕士 研究生 本科 [大高初研][一二三四] [一二三四五六]年级 小学 初中 高中 大学 博 研 书"
)
_ITEMS = (
    "数据库 服务器 缓存 IP 端口 时区 系统 环境 编辑器 IDE 分支 框架 版本 域名 集群 语言 后端 前端"
)
_BOOKED = "预约 会议 面试 考试 约会 聚会 婚礼 手术 航班 会 课 演出 比赛 答辩"
_FEATS = "毕业 升职 住院 获奖 考过 通过了 拿到了 参加了 赢了 丢了 摔伤 骨折 去世 完成了 当上了"
_HOBBIES = "游泳 开车 做饭 编程 画画 下棋 滑雪 唱歌 跳舞 写代码 骑[^，]{1,4} 写[^，]{1,6}"


_SLOTS = {
    "A": r"[一两二三四五六几\d]*[个名位场次门家]?",
    "MEASURE": "辆|台|部|把|套|个|只|块|架|双|条|本|艘|栋|间|张|副|件|款|支|匹|头|对|缸",
    "LIGHT": "(?P<verb>[吃喝]|[打踢看听玩读弹](?=[^，]{2}))?",
    "IS": "(?:是|为|[:：])? ?",
    "WILL": "(?:打算|计划|准备|想要?|将?要|将|会|决定|即将|马上|可能|一起|[和跟][^，]{1,6}?){0,4}",
    "TRIP": "出差|旅[游行]|游?玩[^，]{0,4}|度假|[开参]会|过年|探亲|留学|滑雪|一[趟次]|参加[^，]+",
    "WITH": "(?:[和跟与][^，]{1,8}?(?:一起)?)?",
    "CALLED": "，?[它他她]?的?(?:名字)?(?:是叫|叫做|叫|名叫|名为|是)",
    "DEGREE": any_word(_DEGREES),
    "BOOKED": any_word(_BOOKED),
    "FEAT": any_word(_FEATS),
    "place": (
        "(?![一那哪看见找接拿取买参做办吃喝考面学跑爬打修剪着]|户外|外面|公司|超市|医院)"
        r"[^\s，的了过]{2,12}?"
    ),
    "home": r"(?![^，]*(?:酒店|宾馆|民宿|旅馆|医院)|[着了过])[^\s，的了过]{2,12}?",
    "city": rf"{PLACE}(?:[^\s，的了过]{{0,6}}[市省区县州镇])?",
    "organization": "(?!一[家个所间])[^，的了我你他她这那]{2,20}?",
    "school": rf"(?![读上念])[\w·]{{0,12}}?{any_word(_SCHOOLS)}|[A-Z]{{2,6}}",
    "occupation": f"[^，的了是]{{0,10}}?{any_word(_JOBS)}",
    "field": "[^，的了]{2,16}?",
    "person": (
        rf"(?!{any_of(CHINESE)}|外卖|滴滴|快递|代驾|[^，]{{0,2}}车|一[声下句起]|起床|回家|加班|[别帮])(?:(?![了他她你的在去来过着不吃做])[\u4e00-\u9fff·]){{1,6}}?"
        "|[A-Za-z][A-Za-z .'-]{0,30}?"
    ),
    "titled": f"[{_SURNAMES}](?:{_TITLES})",
    "strict": NAME,
    "self": SELF,
    "firm": f"[A-Z][A-Za-z ]+|[^，的了]{{0,8}}{any_word(_FIRMS)}",
    "role": any_of(CHINESE),
    "thing": "(?![这那它什死啊呀的])[^，]{1,30}?",
    "animal": rf"[^\s，的了]{{0,6}}?{any_word(_PETS)}",
    "illness": rf"[^\s，的了]{{0,8}}{any_word(_ILLS)}受?",
    "hobby": any_word(_HOBBIES),
    "language": "[^，的了]{1,20}?[语话文]",
    "product": r"[A-Za-z][\w .+#/-]{0,30}?|飞书|钉钉|企业微信|微信|腾讯文档|石墨|语雀|支付宝",
    "item": rf"[\w ]{{0,10}}{any_word(_ITEMS)}",
    "value": "[^，]{1,60}?",
    "words": "(?!的?就)[^，是]{1,10}?",
    "age": r"\d{1,3}|[一二三四五六七八九十百]{1,4}",
    "email": r"[A-Za-z0-9_.+-]+@[\w-]+(?:\.[\w-]+)+",
    "phone": r"\+?\d[\d -]{5,18}\d",
    "handle": "[A-Za-z0-9_@.-]{3,40}",
}
# Few of them, and none that is made of two others: anything else could take exponential time.
_ADVERBS = any_word("""
现在 目前 一直 从小 平时 其实 确实 真的? 也 还 就 都 特别 非常 十分 很 超级? 比较 挺 更 最 已经 刚
本来 正在? 最近 从 自 开始 起 又 先 终于 好像 大概 可能 今年 一个人 平常 偶尔 有时候? 的时候
""")
_PARTICLES = any_word(
    "了 啦 呢 啊 呀 哦 的 吧 嘛 哈 来着 而已 左右 多年 [一二两三四五六七八九十几\\d]+年"
)
_TOGETHER = "(?:[和跟与][^，]{1,8}?(?:都|一起))"
_TABLE = """
identity {s}/name - by:naming
  是<titled as person>
contact {s}/email -
  的?(?:电子)?(?:邮箱|邮件|[Ee]-?mail)(?:地址)?<IS><email>
contact {s}/phone -
  的?(?:手机|电话|联系){1,2}(?:号码?|方式)?<IS><phone>
contact {s}/wechat -
  的?微信(?:号|ID|id)?<IS><handle>
contact {s}/qq -
  的?QQ(?:号码?)?<IS><handle>
contact {s}/github -
  的?[Gg]it[Hh]ub(?:账号|用户名|ID)?<IS><handle>
identity {s}/nickname - by:naming
  @(?:大家|朋友们?|同事们?|家人|别人)?(?:都|一般|可以|就)*(?:叫|喊|称呼)我<person>(?:就[行好])?
identity {s}/age -
  (?:的?年龄是)?(?:刚?满|快)?<age>周?岁半?
identity {s}/gender -
  (?:的性别)?是<A>(?P<gender>男|女)(?:生|性|孩子?|士)?
identity {s}/zodiac -
  (?:是|的星座是)?(?P<sign>[^，的]{2}座)
  是?属(?P<sign>[鼠牛虎兔龙蛇马羊猴鸡狗猪])
identity {s}/birthday -
  的?(?:生日|出生日期)(?:是|在|为)?(?P<date>[^，]{0,12})
  是?(?:出生|生)[于在]?的?
identity {s}/height -
  的?身高[是有]?<value>
identity {s}/weight -
  的?体重[是有]?<value>
identity {s}/nationality -
  (?:的国籍)?是(?P<nation>(?:[中美英法德韩泰外]国|日本|俄罗斯|加拿大|澳大利亚|印度|意大利|西班牙
    |新加坡|马来西亚|越南|巴西|荷兰|瑞士)人)
relationship {s}/partner -
  [和跟与][^，]{1,8}分手
  [是仍]?单身[狗汉]?
  (?:结婚|已婚|离婚|订婚|离异|未婚)[^，]{0,6}
relationship {s}/partner married_to:person
  [和跟与]<strict as person>(?:结婚|领证)[^，]{0,4}
relationship - - by:has_role
  有了?<A>(?:亲|双胞胎|大|小)?<role>(?:<CALLED><person>)?
  [和跟与]<strict as person>是<role>
work {s}/works_at teaches_at:organization,teaches:field
  在<school as organization>(?:任教|教书|执教|(?:做|当)[^，]{0,4}(?:老师|教授|讲师))
  在<school as organization>教(?:授|的是)?<field>
  (?:任教|执教)于<organization>
  是<school as organization>的[^，的]{0,6}(?:老师|教授|讲师)
work {s}/teaches teaches:field
  教(?:授|的是)?(?![我你他她它会训育给过书]|用户|孩子|儿子|女儿|大家|学生)<field>
relationship - - by:role_of
  是(?P<owner>我)的?<A><role>
  是<strict as owner>的?<role>
  是(?P<owner>[^，的是]{2,4})的<role>
identity - has_pet:name|animal by:pet
  [养有领]养?[了着过]?[一两二三几\\d]*(?:<MEASURE>)<animal>(?:<CALLED><person as name>)?
health {s}/allergy/{thing} allergic_to:thing each:thing
  对(?P<thing>[^，的了]{1,20}?)(?:严重|有点|轻微|会|很|都|也)*过敏
  有?(?P<thing>[^，的了]{1,20}?)过敏[症体质]*
health - -
  (?:有|得过?了?|患有?了?|确诊了?为?|查出来?了?)(?:[轻中重]度|轻微|严重|一?点)?的?<illness>
  [轻中高]?度?(?:近视|散光|失眠|怀孕|贫血|色盲|恐高|晕车|乳糖不耐受?)[^，]{0,8}
  经常(?P<illness>失眠|头[疼痛]|感冒|胃[疼痛])
  的?(?:睡眠|胃|身体|血压|视力|腰|膝盖|颈椎)[^，]{0,4}(?:不[^，]{0,3}好|差|疼|痛|高)
  (?:每天|在|要|长期)*(?:吃|服用)(?P<thing>[^，]{1,12}药)
health {s}/blood_type -
  (?:的?血型)?是?(?P<value>(?:AB|[ABO])型血?)
residence {s}/lives_in -
  (?:搬离|搬出)了?(?P<left>[^，了]{2,12})
residence - -
  不住在?(?P<left>[^，了]{2,12})
residence {s}/lives_in lives_in:place
  (?:住在?|居住[在于]|定居在?|生活在|搬[到去来回]了?|搬家到了?|移居到?了?)<home as place>
    (?:住|生活|定居|工作)?
  在<city as place>(?:(?:生活|居住|定居|住|租房)[^，]{0,6})?
  的?(?:家|住址|现居地?)住?[在是]<place>
residence {s}/from from:place
  的?(?:老家|家乡|籍贯|故乡)[在是]<place>
  来自<place>
  是?从<place>来
  在<place>长大
  是(?P<place>[^，的了个位名]{2,6}?)人(?<![男女工老好病名商军主客诗大责系始行]人)
residence {s}/born_in born_in:place
  (?:出生|生)[于在]<place>
  是?在<place>出生[并长大]*
education {s}/graduated_from graduated_from:organization,studies:field
  (?:本科|硕士|博士|研究生)?毕业[于自]<organization>(?:的?<field>(?:专业|系))?
  是?[从在]?<school as organization>毕业
education {s}/studies_at studies_at:organization,studies:field
  (?:就读于?|在|考[上入]了?)<school as organization>(?:就读|读书|上学|念书)?
    (?:(?:在?[读念上]|攻读)<DEGREE>?(?:生|学位)?)?
  (?:就读于|在)<school as organization>的?(?:学习|攻读|主修|读|念|学)?<field>(?:专业|系)?
    (?:的?<DEGREE>(?:生|学位)?)?
  是<school as organization>的?(?:(?P<field>[^，的了]{2,10})(?:专业|系)的?)?(?:在读)?<DEGREE>?的?
    (?:学生|研究生|博士生|本科生|大学生)
  在(?P<organization>[^，的了]{2,10}?)(?:攻读|主修|学习|念)<field>(?:专业)?
education {s}/studies_at studies_in:place
  在<city as place>(?:留学|读书|上学|念书|读<DEGREE>)
education {s}/studies_at -
  (?:从(?P<left>[^，了]{2,12}?))?(?:退学|辍学)
  在?[读上念是]<DEGREE>+(?:学生|生)?
education {s}/studies studies:field
  的?(?:专业|研究方向|研究领域|主修|辅修)[是为]?<field>
  (?:主修|攻读|学的是|读的是|研究的是)<field>(?:专业)?
  [学读念]<field>专业
work {s}/works_at -
  (?:[从在](?P<left>[^，了]{2,16}?))?(?:离职|辞职|裸辞|被裁员?|被辞退|被开除)[^，]{0,4}
  被(?P<left>[^，了]{2,12}?)(?:裁|辞退|开除)[员掉]?
  离开了?<firm as left>
work - worked_at:organization
  在<organization>(?:工作|上班|实习|待|干|做)过[^，]{0,8}
  (?:以前|之前|曾经?|过去|原来)[也就是]*在<organization>(?:工作|上班|实习|待|干|做)[^，]{0,8}
work {s}/works_in works_in:place
  的?(?:工作|办公)地点?[是在]<place>
  在<city as place>(?:工作|上班|打工|实习|创业)[^，]{0,6}
work {s}/works_at works_at:organization,works_as:occupation
  在<organization>[上里]?(?:做|当|担任|任)(?:的是)?<A>(?P<occupation>[^，了过]{2,12}?)(?:的工作)?
  的?(?:(?:工作)?单位|(?:工作|上班)的(?:地方|公司|单位))(?:名[称字])?(?:是|叫做?)<organization>
  在<organization>里?(?:工作|上班|任职|就职|打工|供职|实习)[^，过]{0,6}
  (?:就职于|任职于|供职于|入职了?|加入了?|跳槽[到去]了?)<organization>
  是<organization>的<occupation>
  在一[家个所间][^，的]{1,10}?(?:做|当|担任)<A>(?P<occupation>[^，了过]{2,12}?)
education {s}/job -
  是<A>(?P<thing>[^，的了]{0,6}(?:学生|研究生|博士生|本科生|高中生|大学生))
work {s}/job works_as:occupation
  (?:是做|是当|是|当|做)了?<A><occupation>
  的?(?:职业|工作|职位)是<A>(?P<occupation>[^，的了]{2,12}?)
work {s}/job works_in:field
  (?:转行|改行)[做到去当]?了?<field>
  从事<field>(?:相关|方面|行业|工作|的)*
work - -
  (?:以前|之前|曾经?|过去|原来)是?[做干当](?P<field>[^，的了]{2,10})的?
work {s}/job -
  是?做(?P<field>[^，的了]{2,8})的
  (?:退休|失业|待业|创业)[^，]{0,4}
user_preference {s}/favorite/{words} likes:thing
  最(?:喜欢|爱|喜爱)的?<words>[是叫]<thing>
user_preference {s}/diet -
  是?<A>(?:严格的)?(?:素食主义者|素食者|吃全?素|纯素|吃清真|清真饮食|生酮饮食)
user_preference {s}/like/{thing} dislikes:thing each:thing
  (?:不(?:太|怎么|是很|大|再)?(?:喜欢|爱|吃|喝|碰|能吃|能喝|抽)|讨厌|受不了|[吃喝]不[了惯]|恨|害?怕
    |反感|厌恶)(?:的是)?<LIGHT><thing>
user_preference {s}/like/{thing} likes:thing each:thing
  (?:喜欢上?了?|热爱|偏爱|喜爱|钟爱|痴迷于?|迷上了|爱上了|沉迷于?|酷爱|偏好|爱)(?:的是)?<LIGHT><thing>
  对<thing>感兴趣
  喜欢的就?是<thing>
  的?(?:爱好|兴趣|兴趣爱好)(?:是|有|包括)<LIGHT><thing>
  只[吃喝用看听]<thing>
skill {s}/skill/{language} speaks:language each:language
  (?:会|能|可以)(?:流利地)?[说讲]<language>
  (?:会|懂|精通|擅长)<language>
skill {s}/skill/{thing} plays:thing each:thing
  (?:会|擅长|能)(?:弹|拉|吹|打|踢|演奏)<thing>
skill {s}/skill/{thing} -
  (?:不?会|擅长)<hobby as thing>
  (?:擅长|精通|熟悉|掌握了?|懂)<thing>
skill {s}/skill/{thing} studies:thing each:thing
  在?(?:学习|自学|练习)<thing>
  在[学练]<thing>
skill - expert_in:field
  [是在]<field>(?:领域|方面|方向|界)?的?(?:非常|很|十分|相当|特别|最|业内|国际|一位)*
    (?:有名|著名|知名|权威|厉害|资深|出名|专家|大牛|有建树)的?(?:专家|学者)?
setting - uses:product by:setting
  的?<item as name>(?:用的是|使用的是|跑的是|采用|使用|用|跑在|部署在) ?(?P<product>[^，]{1,40}?)
setting - - by:setting
  的?<item as name>(?:号|地址)?(?:是|为|设置为|设为|[:：])? ?(?P<value>[^，]*[A-Za-z\\d][^，]*?)
setting {s}/setting/{words} -
  每[^，]*?(?P<words>部署|发布|发版|上线|备份|例会|站会)[^，]{0,6}
setting - uses:product
  (?:在用|使用|用的是|用) ?<product> ?(?:(?:写|编程|开发|办公|沟通|管理|做|来|部署|协作|记)[^，]*)?
plan - plans_to_visit:place
  <WILL>(?:飞往|前往|去往|去|飞|到|回)<city as place>[^，过了]{0,12}
  <WILL>(?:飞往|前往|去往|去|飞|到|回)<place>(?:<TRIP>)
plan - -
  (?:打算|计划|准备|决定|即将|将要|约了|预约了|报名了|报了)[^，]{2,}
  想(?=去|学|买|考|换|搬|找|当|做|开|养|申请|转)[^，]{2,}
  要(?=去|参加|考|搬|结婚|出差|开会|面试|出国|做手术|交|见|回|毕业)[^，]{2,}
  有(?:<A>|一个)[^，]{0,10}<BOOKED>
  在?准备[^，]{1,12}
event - visited:place
  <WITH>(?:去过|到过|去了|到了|游览了|参观了|飞了)<city as place>[^，]{0,12}
  <WITH>(?:去过|到过|去了|游览了|参观了)<place>(?:<TRIP>)?
possession {s}/owns/{words} owns:product
  的(?P<words>手机|电脑|车|相机|笔记本|耳机|键盘|手表|自行车|平板)(?:是|用的是) ?
    (?:[^，]{1,8}款的?)?(?P<product>(?![^，]*色)[^，的]{2,24}?)
possession - owns:thing
  (?:有|新?买了|入手了|拥有|换了|收到了)[一两三几\\d]*(?:<MEASURE>)(?:新的?|旧的?|二手的?|自己的)?
    (?P<thing>(?![^，]*(?:问题|想法|建议|疑问|要求))[^，]{2,30}?)
  (?:买了|入手了|开的是)<thing>
event - -
  [^，@]{0,6}<FEAT>[^，]{0,12}
user_preference - -
  <WITH>(?:每[天周月年晚早个]|经常|通常|一般|习惯|总是|天天)[^，]{2,}
identity {s}/name - by:naming
  (?:的?全?名字?)?(?:是叫|叫做|叫|名叫)<person>
  的?(?:全名|名字|本名)是<person>
  是<self as person>(?!的)
  姓<person>
"""


@cache  # not at import: compiling takes time
def chinese() -> Language:
    """The rules of Chinese, ready."""
    return Language(
        rules(
            _TABLE,
            _SLOTS,
            f"(?:{_ADVERBS}| ){{0,6}}{_TOGETHER}?%s(?:{_PARTICLES}| ){{0,4}}",
        ),
        CHINESE,
        "{}的{}",
        re.compile("、|和|跟|与|以及|还有|及|，"),
        re.compile(
            r"^(?:[一两几][只条个辆台部件本种把位名]|一[点些]点?|一点儿|流利的?|[的 ])+|[的了 ]+$"
        ),
        [re.compile(NAME), re.compile(NAME.replace("{1,2}?", "{2}"))],
        re.compile(rf"的?(?P<role>{any_of(CHINESE)})(?:他|她)?"),
        re.compile(rf"我的?(?P<role>{any_of(CHINESE)})"),
        re.compile("(?:已经?|早就|现在|目前|也|就|都)*(?:不再|(?:不|没(?=在))(?=.*了))(?P<be>)"),
        re.compile("了+[吧啊呢]?$"),
    )
